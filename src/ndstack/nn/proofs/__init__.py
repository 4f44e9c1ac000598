"""The proofs of section 8.3 as programs: grammars and automata compiled to networks that recognise them."""

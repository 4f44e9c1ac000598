"""What all operations share: compiling, threads, vectors, addresses, exponentials."""

"""Networks from vectors to vectors: recurrent controllers with stacks, stack attention, transformers."""

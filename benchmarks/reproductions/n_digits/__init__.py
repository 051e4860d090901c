"""N-digit MNIST of hedged instance embeddings (Oh et al. 2019, App. A)."""

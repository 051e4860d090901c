"""Fashion-MNIST in, MNIST out, of Laplacian metric learning (Warburg et al. 2023, Table 2)."""

"""The input format NumPy: .npy and .npz files."""

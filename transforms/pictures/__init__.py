"""Recognizes and checks pictures by their bytes, without decoding them."""

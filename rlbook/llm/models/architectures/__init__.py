"""Transformers written out: decoders, an encoder, encoder-decoders, and their parts."""

"""Language models: Hugging Face models, adapters, folders, export, sizes. The transformers that are
written out are in `architectures`."""

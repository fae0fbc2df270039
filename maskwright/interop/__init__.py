"""Export of models to other libraries, with a comparison of outputs, and upload to the hub."""

"""Other programs and places: models that come from them and go to them."""

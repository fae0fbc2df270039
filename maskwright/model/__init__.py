"""The encoder: single-device modules on packed tokens, one configurable architecture."""

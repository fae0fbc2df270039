"""What a run is, and where its parts are stored."""

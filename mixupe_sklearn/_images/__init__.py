"""Images in every form that a user may have."""

"""How pictures and sounds are read, checked and changed, before anything is trained."""

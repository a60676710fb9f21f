"""What a reader does: the catalogue of mistakes, and the examination that finds them."""

"""What a whole input holds, and the schema file that follows."""

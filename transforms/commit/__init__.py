"""What makes a dataset visible, and what undoes a run that ended early."""

"""What is wrong with a run, and what its logged numbers mean: the doctor, the symptoms it knows,
the glossary."""

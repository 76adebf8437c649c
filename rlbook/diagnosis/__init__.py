"""Diagnosis of a run, and the meaning of its logged metrics: the doctor, the symptoms it knows, the
glossary."""

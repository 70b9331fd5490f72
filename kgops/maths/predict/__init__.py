"""Answers to questions (head, relation, ?) by a trained model: names, candidates, ranking, all pairs of a relation."""

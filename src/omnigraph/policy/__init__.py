"""Who may do what: rules in YAML, compiled to Cedar and asked before every request and every attributed write.

Start at `Policy.check`. `rules` knows the file, `cedar` the language it is compiled to, `cases` the tests people write
for their own policies. There are only permits: nothing is allowed unless a rule allows it.
"""

from omnigraph.policy.evaluate import Decision, Policy
from omnigraph.policy.rules import GRAPH_ACTIONS, SERVER_ACTIONS, Rule, Rules, parse_rules

__all__ = ["GRAPH_ACTIONS", "SERVER_ACTIONS", "Decision", "Policy", "Rule", "Rules", "parse_rules"]

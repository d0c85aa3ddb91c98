"""Alerts of the console: rules, the engine that applies them, silences, history, and notifications."""

from rocketpy.console.alerts.engine import Engine, Step
from rocketpy.console.alerts.readings import Readings
from rocketpy.console.alerts.records import Alert, Channel, Entry, Notice, Silence
from rocketpy.console.alerts.rules import CONDITIONS, Condition, Rule, built_in_rules
from rocketpy.console.alerts.store import AlertStore, SqliteStore, opened_store
from rocketpy.console.alerts.watch import AlertWatch

__all__ = [
    "CONDITIONS",
    "Alert",
    "AlertStore",
    "AlertWatch",
    "Channel",
    "Condition",
    "Engine",
    "Entry",
    "Notice",
    "Readings",
    "Rule",
    "Silence",
    "SqliteStore",
    "Step",
    "built_in_rules",
    "opened_store",
]

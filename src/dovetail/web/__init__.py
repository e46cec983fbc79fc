"""The dashboard: what Dovetail sees and would do, as pages for people and as JSON for programs.

It decides nothing and writes nothing. A view turns a picture of the cluster into a page; a page becomes HTML
or JSON, so that neither can say what the other does not.
"""

from dovetail.picture import ChangeDocument, Moment, Picture
from dovetail.web.app import Dashboard, ShownCluster
from dovetail.web.page import WebPage, build_document
from dovetail.web.render import RecordedTimes
from dovetail.web.views import find_page

__all__ = [
    "ChangeDocument",
    "Dashboard",
    "Moment",
    "Picture",
    "RecordedTimes",
    "ShownCluster",
    "WebPage",
    "build_document",
    "find_page",
]

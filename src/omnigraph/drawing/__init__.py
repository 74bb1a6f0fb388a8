"""Pictures of graphs and schemas: SVG that reads well in a notebook, in a file, in light and dark.

`draw` asks a graph for a bounded part (`neighbourhood`), gives its nodes places (`layout`) and makes a `Drawing` of it;
`schema_svg` draws types. Nothing here knows where the graph is: it is asked by queries, and so a graph behind a server
is drawn as well.
"""

from omnigraph.drawing.neighbourhood import Beginning, neighbourhood
from omnigraph.drawing.picture import Drawing

__all__ = ["Beginning", "Drawing", "neighbourhood"]

package page

import "github.com/coder/websocket"

const (
	// subprotocol is what Colab's page offers and expects back; without the echo it drops the
	// connection.
	subprotocol = "mcp"
	// maxMessage bounds one message of a tab, in bytes. Beyond it the tab is closed with 1009.
	maxMessage = 64 << 20
)

// bound limits what a tab may send at once.
func bound(conn *websocket.Conn) { conn.SetReadLimit(maxMessage) }

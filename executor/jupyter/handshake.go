package jupyter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// socketType is a ZeroMQ socket type of this client.
type socketType string

const (
	dealer socketType = "DEALER"
	sub    socketType = "SUB"
)

// peers are the types that a socket can be connected to (ZMTP 3.0, "The Socket-Type
// Property"). The check also detects a loopback port that got connected to itself. That
// can happen while no process listens there, and would keep the kernel from binding the port.
var peers = map[socketType][]string{
	dealer: {"ROUTER", "REP"},
	sub:    {"PUB", "XPUB"},
}

const (
	greetingSize = 64
	// handshakeTime bounds the handshake. Without it, a peer that accepts and then
	// sends nothing would block the socket for ever.
	handshakeTime = 5 * time.Second
)

// greeting requests ZMTP 3.0 with the NULL mechanism. With minor version 0, a newer peer
// uses no commands of 3.1: subscriptions are messages.
func greeting() []byte {
	g := make([]byte, greetingSize)
	g[0], g[9] = 0xFF, 0x7F // signature
	g[10], g[11] = 3, 0     // version
	copy(g[12:32], "NULL")  // mechanism; then as-server and filler, all zero
	return g
}

func checkGreeting(g []byte) error {
	if g[0] != 0xFF || g[9] != 0x7F {
		return fmt.Errorf("%w: the greeting's signature is wrong", errProtocol)
	}
	if g[10] < 3 {
		return fmt.Errorf("%w: version %d is older than 3", errProtocol, g[10])
	}
	if mechanism := bytes.TrimRight(g[12:32], "\x00"); string(mechanism) != "NULL" {
		return fmt.Errorf("%w: mechanism %q is not NULL", errProtocol, mechanism)
	}
	return nil
}

// shake performs the handshake over conn (ZMTP 3.0, "Overall Behaviour").
func shake(conn net.Conn, r *frameReader, kind socketType, identity string) error {
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return err
	}
	ready := appendFrame(greeting(), flagCommand, readyCommand(kind, identity))
	if _, err := conn.Write(ready); err != nil {
		return err
	}
	if err := readHandshake(r, kind); err != nil {
		return err
	}
	if kind == sub { // subscribe to everything
		if _, err := conn.Write(appendFrame(nil, 0, []byte{1})); err != nil {
			return err
		}
	}
	return conn.SetDeadline(time.Time{})
}

// readHandshake reads and checks the peer's half.
func readHandshake(r *frameReader, kind socketType) error {
	g := make([]byte, greetingSize)
	if _, err := io.ReadFull(r.in, g); err != nil {
		return fmt.Errorf("reading the greeting: %v", err)
	}
	if err := checkGreeting(g); err != nil {
		return err
	}
	command, err := r.command()
	if err != nil {
		return fmt.Errorf("reading READY: %v", err)
	}
	peer, err := parseReady(command)
	if err != nil {
		return err
	}
	if !slices.Contains(peers[kind], peer) {
		return fmt.Errorf("%w: a %s can't be connected to a %.20q", errProtocol, kind, peer)
	}
	return nil
}

func readyCommand(kind socketType, identity string) []byte {
	command := []byte("\x05READY")
	command = appendProperty(command, "Socket-Type", string(kind))
	return appendProperty(command, "Identity", identity)
}

func appendProperty(dst []byte, name, value string) []byte {
	dst = append(dst, byte(len(name)))
	dst = append(dst, name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

// parseReady returns the peer's socket type and ignores other properties.
func parseReady(command []byte) (socketType string, err error) {
	name, rest, ok := shortString(command)
	if !ok {
		return "", fmt.Errorf("%w: a command without a name", errProtocol)
	}
	if name == "ERROR" {
		reason, _, _ := shortString(rest)
		return "", fmt.Errorf("the peer refuses: %.100q", reason)
	}
	if name != "READY" {
		return "", fmt.Errorf("%w: command %.20q instead of READY", errProtocol, name)
	}
	for len(rest) > 0 {
		var property string
		if property, rest, ok = shortString(rest); !ok || len(rest) < 4 {
			return "", fmt.Errorf("%w: READY is incomplete", errProtocol)
		}
		size := binary.BigEndian.Uint32(rest)
		if rest = rest[4:]; uint64(size) > uint64(len(rest)) {
			return "", fmt.Errorf("%w: READY is incomplete", errProtocol)
		}
		if strings.EqualFold(property, "Socket-Type") {
			socketType = string(rest[:size])
		}
		rest = rest[size:]
	}
	return socketType, nil
}

// shortString reads a string that follows its length in one byte.
func shortString(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return "", nil, false
	}
	return string(b[1 : 1+int(b[0])]), b[1+int(b[0]):], true
}

package jupyter

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
)

// maxSocketPath is the longest path of a Unix socket on Linux, in bytes without its NUL.
const maxSocketPath = 107

// ErrPathTooLong means that the paths of ipc sockets in a folder would be longer than
// the system allows. NewTCP needs no paths.
var ErrPathTooLong = errors.New("path of an ipc socket is too long")

// ConnectionInfo is the content of a kernel's connection file.
type ConnectionInfo struct {
	Transport       string `json:"transport"` // "tcp" or "ipc"
	IP              string `json:"ip"`        // address, or the path before "-PORT" with ipc
	ShellPort       int    `json:"shell_port"`
	IOPubPort       int    `json:"iopub_port"`
	StdinPort       int    `json:"stdin_port"`
	ControlPort     int    `json:"control_port"`
	HBPort          int    `json:"hb_port"`
	Key             string `json:"key"` // empty: messages are not signed
	SignatureScheme string `json:"signature_scheme"`
	KernelName      string `json:"kernel_name"`
}

// NewIPC prepares a kernel whose sockets are dir/k-1 to dir/k-5. A user who may enter
// dir may use the sockets, so dir should be private.
func NewIPC(dir string) (ConnectionInfo, error) {
	info := newConnection("ipc", filepath.Join(dir, "k"), [5]int{1, 2, 3, 4, 5})
	if _, path := info.address(info.ShellPort); len(path) > maxSocketPath {
		return ConnectionInfo{}, fmt.Errorf("%q: %w", path, ErrPathTooLong)
	}
	return info, nil
}

// NewTCP prepares a kernel on loopback ports that are free now. If another program
// takes one before the kernel does, the kernel ends while starting.
func NewTCP() (ConnectionInfo, error) {
	const host = "127.0.0.1"
	var ports [5]int
	for i := range ports {
		listener, err := net.Listen("tcp", host+":0")
		if err != nil {
			return ConnectionInfo{}, fmt.Errorf("finding a free port: %v", err)
		}
		defer listener.Close() // when all are found, so that they differ
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return newConnection("tcp", host, ports), nil
}

func newConnection(transport, ip string, ports [5]int) ConnectionInfo {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return ConnectionInfo{
		Transport: transport, IP: ip,
		ShellPort: ports[0], IOPubPort: ports[1], StdinPort: ports[2], ControlPort: ports[3], HBPort: ports[4],
		Key: hex.EncodeToString(key), SignatureScheme: signatureScheme,
		KernelName: "python3",
	}
}

// address returns the arguments of net.Dial.
func (c ConnectionInfo) address(port int) (network, address string) {
	if c.Transport == "ipc" {
		return "unix", c.IP + "-" + strconv.Itoa(port)
	}
	return "tcp", net.JoinHostPort(c.IP, strconv.Itoa(port))
}

func (c ConnectionInfo) validate() error {
	if c.Transport != "tcp" && c.Transport != "ipc" {
		return fmt.Errorf("transport %q is neither tcp nor ipc", c.Transport)
	}
	if c.Key != "" && c.SignatureScheme != signatureScheme {
		return fmt.Errorf("signature scheme %q is not %s", c.SignatureScheme, signatureScheme)
	}
	return nil
}

// String omits the key.
func (c ConnectionInfo) String() string { return c.Transport + "://" + c.IP }

// GoString omits the key.
func (c ConnectionInfo) GoString() string { return c.String() }

// LogValue omits the key.
func (c ConnectionInfo) LogValue() slog.Value { return slog.StringValue(c.String()) }

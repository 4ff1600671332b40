package jupyter

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
)

// maxSocketPath is the longest path of a Unix socket on Linux, in bytes without its NUL.
const maxSocketPath = 107

// ErrPathTooLong means that the paths of ipc sockets in a folder would be longer than
// the system allows.
var ErrPathTooLong = errors.New("path of an ipc socket is too long: set TMPDIR to a folder with a shorter one")

// ConnectionInfo is the content of a kernel's connection file.
type ConnectionInfo struct {
	Transport       string `json:"transport"` // always "ipc"
	IP              string `json:"ip"`        // the path before "-PORT"
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
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	info := ConnectionInfo{
		Transport: "ipc", IP: filepath.Join(dir, "k"),
		ShellPort: 1, IOPubPort: 2, StdinPort: 3, ControlPort: 4, HBPort: 5,
		Key: hex.EncodeToString(key), SignatureScheme: signatureScheme,
		KernelName: "python3",
	}
	if _, path := info.address(info.ShellPort); len(path) > maxSocketPath {
		return ConnectionInfo{}, fmt.Errorf("%q: %w", path, ErrPathTooLong)
	}
	return info, nil
}

// address returns the arguments of net.Dial.
func (c ConnectionInfo) address(port int) (network, address string) {
	return "unix", c.IP + "-" + strconv.Itoa(port)
}

// String omits the key.
func (c ConnectionInfo) String() string { return c.Transport + "://" + c.IP }

// GoString omits the key.
func (c ConnectionInfo) GoString() string { return c.String() }

// LogValue omits the key.
func (c ConnectionInfo) LogValue() slog.Value { return slog.StringValue(c.String()) }

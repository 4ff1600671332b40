package jupyter

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/uuid"
)

// ErrPathTooLong means that a folder is too deep for sockets.
var ErrPathTooLong = errors.New("folder's path is too long for ipc sockets")

// maxSocketPath is sockaddr_un's 108 bytes less the final zero.
const maxSocketPath = 107

// ConnectionInfo is a kernel's connection file
// (https://jupyter-client.readthedocs.io/en/stable/kernels.html#connection-files).
// With ipc, IP is a path and each socket is at IP-port.
type ConnectionInfo struct {
	Transport       string `json:"transport"`
	IP              string `json:"ip"`
	ShellPort       int    `json:"shell_port"`
	IOPubPort       int    `json:"iopub_port"`
	StdinPort       int    `json:"stdin_port"`
	ControlPort     int    `json:"control_port"`
	HBPort          int    `json:"hb_port"`
	Key             string `json:"key"`
	SignatureScheme string `json:"signature_scheme"`
	KernelName      string `json:"kernel_name"`
}

func newConnectionInfo(transport, ip string, ports [5]int) ConnectionInfo {
	return ConnectionInfo{
		Transport: transport, IP: ip,
		ShellPort: ports[0], IOPubPort: ports[1], StdinPort: ports[2], ControlPort: ports[3], HBPort: ports[4],
		Key: uuid.NewString(), SignatureScheme: "hmac-sha256", KernelName: "python3",
	}
}

// NewIPC chooses sockets in dir, which should be private and new. The error is
// ErrPathTooLong when their paths would be.
func NewIPC(dir string) (ConnectionInfo, error) {
	base := filepath.Join(dir, "k")
	if len(base)+2 > maxSocketPath {
		return ConnectionInfo{}, fmt.Errorf("%w: %q", ErrPathTooLong, dir)
	}
	return newConnectionInfo("ipc", base, [5]int{1, 2, 3, 4, 5}), nil
}

// NewTCP chooses free ports on loopback. Another program could take one before
// the kernel does; the kernel then ends at once.
func NewTCP() (ConnectionInfo, error) {
	var ports [5]int
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return ConnectionInfo{}, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close() // all are held until five are found
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return newConnectionInfo("tcp", "127.0.0.1", ports), nil
}

// WriteFile writes the connection file, readable by its owner only: it holds the key.
func (c ConnectionInfo) WriteFile(path string) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	partial := path + ".partial"
	if err := os.WriteFile(partial, data, 0o600); err != nil {
		return err
	}
	return os.Rename(partial, path)
}

// endpoint is what to dial for a port.
func (c ConnectionInfo) endpoint(port int) (network, address string) {
	if c.Transport == "ipc" {
		return "unix", c.IP + "-" + strconv.Itoa(port)
	}
	return "tcp", net.JoinHostPort(c.IP, strconv.Itoa(port))
}

package colabapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/bounded"
)

const (
	// maxJupyterAnswer bounds an answer of a VM's Jupyter server other than a file.
	maxJupyterAnswer = 1 << 20
	// jupyterTimeout bounds one request to it.
	jupyterTimeout = 60 * time.Second
)

// jupyter calls the Jupyter server of one VM through Google's proxy. Code on the VM can make
// it answer anything.
type jupyter struct {
	transport http.RoundTripper
	id        string // of the VM
}

func (b *Backend) jupyterOf(id string) (jupyter, error) {
	return jupyter{&portTransport{b, id, jupyterPort}, id}, checkID(id)
}

// newRequest returns a request whose host the transport replaces.
func newRequest(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	u := url.URL{Scheme: "https", Host: "vm.invalid", Path: path}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body == nil {
		req.Body, req.GetBody, req.ContentLength = nil, nil, 0
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "colab-relay")
	return req, nil
}

// do sends a request and returns the answer's body, bounded. An answer other than 2xx is an
// *jupyterError.
func (j jupyter) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, jupyterTimeout)
	defer cancel()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := newRequest(ctx, method, path, text)
	if err != nil {
		return nil, err
	}
	res, err := client.EndingWithContext(j.transport).RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := bounded.ReadAll(res.Body, maxJupyterAnswer)
	if res.StatusCode/100 != 2 {
		return nil, &jupyterError{j.id, res.StatusCode}
	}
	return answer, err
}

// jupyterError is an answer that is no success. Its text is not shown: it may be anything.
type jupyterError struct {
	id     string
	status int
}

func (e *jupyterError) Error() string {
	switch {
	case e.status == http.StatusNotFound || e.status == http.StatusUnauthorized:
		return fmt.Sprintf("VM %q answered HTTP %d, also to a fresh token: what was asked for is missing there, or Google's proxy does not reach the VM", e.id, e.status)
	case e.status/100 == 3:
		return fmt.Sprintf("VM %q answered with a redirect (HTTP %d), which is not followed", e.id, e.status)
	}
	return fmt.Sprintf("VM %q answered HTTP %d", e.id, e.status)
}

// Touch implements vm.Backend. It lists the kernels. Whether that counts as use of the VM is
// unverified; Google's own extension sends requests to the proxy for this purpose.
func (b *Backend) Touch(ctx context.Context, id string) error {
	j, err := b.jupyterOf(id)
	if err == nil {
		_, err = j.do(ctx, http.MethodGet, "/api/kernels", nil)
	}
	if err != nil {
		return fmt.Errorf("keep VM %q alive: %w", id, err)
	}
	return nil
}

// kernelPattern matches a kernel's id, which becomes part of paths.
var kernelPattern = regexp.MustCompile(`^[0-9a-fA-F-]{1,64}$`)

// startKernel starts a helper kernel.
func (j jupyter) startKernel(ctx context.Context) (string, error) {
	text, err := j.do(ctx, http.MethodPost, "/api/kernels", struct{}{})
	if err != nil {
		return "", fmt.Errorf("start a kernel on the VM: %w", err)
	}
	var kernel struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(text, &kernel) != nil || !kernelPattern.MatchString(kernel.ID) {
		return "", errors.New("start a kernel on the VM: its Jupyter server answers in an unknown form")
	}
	return kernel.ID, nil
}

// endKernel deletes a helper kernel. Programs that it started detached run on. A kernel that
// can't be deleted now ends with the VM.
func (j jupyter) endKernel(ctx context.Context, kernel string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, _ = j.do(ctx, http.MethodDelete, "/api/kernels/"+kernel, nil)
}

// compareFile compares a file of the VM with what it should contain.
func (j jupyter) compareFile(ctx context.Context, path string, content []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	req, err := newRequest(ctx, http.MethodGet, "/files"+path, nil)
	if err != nil {
		return false, err
	}
	res, err := client.EndingWithContext(j.transport).RoundTrip(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return false, &jupyterError{j.id, res.StatusCode}
	}
	return equals(res.Body, content)
}

// equals reads at most one piece more than content has.
func equals(r io.Reader, content []byte) (bool, error) {
	piece := make([]byte, 64<<10)
	for {
		n, err := r.Read(piece)
		if n > len(content) || !bytes.Equal(piece[:n], content[:n]) {
			return false, nil
		}
		content = content[n:]
		if err == io.EOF {
			return len(content) == 0, nil
		}
		if err != nil {
			return false, err
		}
	}
}

package client

import (
	"io"
	"net/http"
	"sync"
)

// trackBody makes req send bodies from req.GetBody, and returns a group that is done when
// the transport has closed all of them. A transport may read a body after RoundTrip has
// returned (see http.RoundTripper), but callers reuse the buffers of parts.
func trackBody(req *http.Request) *sync.WaitGroup {
	open := new(sync.WaitGroup)
	if req.GetBody == nil {
		return open
	}
	get := req.GetBody
	req.GetBody = func() (io.ReadCloser, error) {
		body, err := get()
		open.Add(1)
		return trackedBody{body, sync.OnceFunc(open.Done)}, err
	}
	req.Body, _ = req.GetBody() // from memory: it cannot fail
	return open
}

// trackedBody calls closed when it is closed.
type trackedBody struct {
	io.Reader
	closed func()
}

// Close implements io.Closer.
func (b trackedBody) Close() error {
	b.closed()
	return nil
}

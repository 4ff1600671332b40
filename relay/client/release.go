package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"colabrelay/shared/bounded"
)

// releaseTime bounds the download of a release's file of at most limit bytes: 30 seconds, and
// what the bytes take at 2 Mbit/s.
func releaseTime(limit int64) time.Duration {
	return 30*time.Second + time.Duration(limit/(256<<10))*time.Second
}

// maxRedirects bounds the redirects of a release's host: GitHub redirects to a separate store.
const maxRedirects = 5

// ReleaseFile fetches a file of a release, at most limit bytes. The server is not an
// executor: nothing is signed and no secret is involved, so it follows redirects, but never
// from https to http.
func ReleaseFile(ctx context.Context, url string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTime(limit))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch %q: the URL cannot be parsed", url)
	}
	req.Header.Set("User-Agent", "colab-relay")
	transport := NewTransport()
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: EndingWithContext(transport), CheckRedirect: onward}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetch %q: HTTP %s", url, res.Status)
	}
	text, err := bounded.ReadAll(res.Body, limit)
	if err != nil {
		return nil, fmt.Errorf("fetch %q: %w", url, err)
	}
	return text, nil
}

func onward(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return errors.New("too many redirects")
	case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
		return errors.New("a redirect leads from https to http")
	}
	return nil
}

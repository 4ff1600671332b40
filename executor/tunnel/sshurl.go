package tunnel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxServerLine bounds a line of what a server prints; the rest of a longer one
// is read as another.
const maxServerLine = 16 << 10

// readURLs opens a session, as services that hand out addresses want, and tells
// each public URL the server prints. It blocks until the link has ended; a
// server that prints none in time ends the link.
func (l *sshLink) readURLs(ctx context.Context, s *sshTunnel, tell func(string)) error {
	session, err := l.client.NewSession()
	if err != nil {
		return fmt.Errorf("open a session to read the URL: %v", err)
	}
	defer session.Close()
	read, write := io.Pipe()
	defer read.Close()
	session.Stdout, session.Stderr = write, write
	if _, err := session.StdinPipe(); err != nil { // kept open: an ended input ends the session
		return fmt.Errorf("open a session to read the URL: %v", err)
	}
	if err := session.Shell(); err != nil {
		return fmt.Errorf("open a session to read the URL: %v", err)
	}
	l.keepers.Go(func() { write.CloseWithError(errors.Join(io.EOF, session.Wait())) })
	late := time.AfterFunc(s.urlLimit, func() { read.CloseWithError(errNoURL) })
	lines := bufio.NewReaderSize(read, maxServerLine)
	found := false
	for {
		line, err := lines.ReadSlice('\n')
		if u := publicURL(string(line), s.host); u != "" {
			late.Stop()
			found = true
			tell(u)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			late.Stop()
			break
		}
	}
	if !found {
		return errNoURL
	}
	<-ctx.Done() // the tunnel stands without its session
	return nil
}

var errNoURL = fmt.Errorf("the server printed no https URL; name it with --ssh-url")

var urlPattern = regexp.MustCompile(`https://[A-Za-z0-9.-]+\.[A-Za-z]{2,}(?::\d+)?(?:/\S*)?`)

// pagesOfServices are the first labels of what services print besides the
// tunnel's address: their dashboards and documents.
var pagesOfServices = []string{"admin", "console", "dashboard", "docs", "www"}

// publicURL finds the tunnel's address in a line: an https URL without a path
// that is neither the server itself nor a page of the service.
func publicURL(line, host string) string {
	for _, text := range urlPattern.FindAllString(line, -1) {
		u, err := url.Parse(strings.TrimRight(text, ".,;)"))
		if err != nil || u.Path != "" || u.Hostname() == host {
			continue
		}
		label, _, _ := strings.Cut(u.Hostname(), ".")
		if slices.Contains(pagesOfServices, strings.ToLower(label)) || strings.Count(u.Hostname(), ".") < 2 {
			continue
		}
		return u.String()
	}
	return ""
}

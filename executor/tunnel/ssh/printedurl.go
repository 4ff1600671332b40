package ssh

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

// maxLine bounds a line that a server prints. The rest of a longer line is read
// as the next one.
const maxLine = 16 << 10

// readURLs opens a session, as services that assign addresses require, and
// reports each public URL that the server prints. It blocks until ctx has ended,
// and fails if the server prints no URL in time.
func (t *Tunnel) readURLs(ctx context.Context, l *link, report func(string)) error {
	session, err := l.client.NewSession()
	if err != nil {
		return fmt.Errorf("open a session to read the URL: %v", err)
	}
	defer session.Close()
	read, write := io.Pipe()
	defer read.Close()
	session.Stdout, session.Stderr = write, write
	if _, err := session.StdinPipe(); err != nil { // is kept open: the end of the input ends the session
		return fmt.Errorf("open a session to read the URL: %v", err)
	}
	if err := session.Shell(); err != nil {
		return fmt.Errorf("open a session to read the URL: %v", err)
	}
	l.work.Go(func() { write.CloseWithError(errors.Join(io.EOF, session.Wait())) })
	late := time.AfterFunc(t.urlTimeout, func() { read.CloseWithError(errNoURL) })
	defer late.Stop()
	found := false
	for lines := bufio.NewReaderSize(read, maxLine); ; {
		line, err := lines.ReadSlice('\n')
		if u := publicURL(string(line), t.host); u != "" {
			late.Stop()
			found = true
			report(u)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	if !found {
		return errNoURL
	}
	<-ctx.Done() // the tunnel remains open when its session ends
	return nil
}

var errNoURL = errors.New("the server printed no https URL; name it with --ssh-url")

var urlPattern = regexp.MustCompile(`https://[A-Za-z0-9.-]+\.[A-Za-z]{2,}(?::\d+)?(?:/\S*)?`)

// servicePages are the first labels of host names that services print besides
// the tunnel's address: their dashboards and documents.
var servicePages = []string{"admin", "console", "dashboard", "docs", "www"}

// publicURL returns the tunnel's address in a line, or "". The address is an
// https URL without a path that is neither the server nor a page of the service.
func publicURL(line, host string) string {
	for _, text := range urlPattern.FindAllString(line, -1) {
		u, err := url.Parse(strings.TrimRight(text, ".,;)"))
		if err != nil || u.Path != "" || u.Hostname() == host {
			continue
		}
		label, _, _ := strings.Cut(u.Hostname(), ".")
		if slices.Contains(servicePages, strings.ToLower(label)) || strings.Count(u.Hostname(), ".") < 2 {
			continue
		}
		return u.String()
	}
	return ""
}

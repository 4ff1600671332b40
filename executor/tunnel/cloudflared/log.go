package cloudflared

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strings"
)

// maxLogLine bounds a line that cloudflared prints. The rest of a longer line is
// read as the next one.
const maxLogLine = 16 << 10

// logReader reads what the program prints.
type logReader struct {
	up  func(url string) // called when the URL leads here
	log *slog.Logger

	url       string
	connected bool   // it has been connected to Cloudflare
	last      string // the last fault it printed, or else its last line
}

// opened says whether the program has opened a tunnel.
func (r *logReader) opened() bool { return r.url != "" && r.connected }

// change is what a line says about the connection to Cloudflare.
type change int

const (
	unchanged change = iota
	connected
	disconnected
)

// The form of cloudflared's lines: a date, three letters for the level, words.
// The tunnel's URL is printed in a box; other lines may hold similar URLs.
var (
	boxedURL     = regexp.MustCompile(`\|\s+(https://[a-z0-9][a-z0-9-]*\.trycloudflare\.com)\s+\|`)
	registered   = regexp.MustCompile(`\bINF (?:Registered tunnel connection|Connection \S+ registered)\b`)
	unregistered = regexp.MustCompile(`\b(?:Unregistered tunnel connection|Retrying connection in up to)\b`)
	faultLine    = regexp.MustCompile(`\b(?:ERR|FTL) |^failed |^[Ii]ncorrect Usage`)
	logDate      = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+ `)
)

// read processes one line. It reports the URL only once there is a connection:
// until then Cloudflare answers the URL with an error.
func (r *logReader) read(line string) change {
	r.log.Debug("cloudflared", "line", line)
	if faultLine.MatchString(line) || !faultLine.MatchString(r.last) {
		r.last = logDate.ReplaceAllString(line, "")
	}
	if found := boxedURL.FindStringSubmatch(line); found != nil {
		r.url = found[1]
	}
	now := unchanged
	switch {
	case registered.MatchString(line):
		now, r.connected = connected, true
	case unregistered.MatchString(line):
		now = disconnected
	}
	if r.opened() {
		r.up(r.url)
	}
	return now
}

// readLines sends each line that is not empty, until the output ends.
func readLines(from io.Reader, lines chan<- string) {
	defer close(lines)
	r := bufio.NewReaderSize(from, maxLogLine)
	for {
		line, err := r.ReadSlice('\n')
		if text := strings.TrimRight(string(line), "\r\n"); text != "" {
			lines <- text
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

package main

import (
	"context"
	"fmt"
	"html"
	"io"
	"os"
	"strings"
	"time"
)

// recording is what the demo printed, with the time of each line. It becomes an animated SVG in which
// the lines come as they came, as in a terminal.
type recording struct {
	out   io.Writer
	on    bool
	began time.Time
	lines []recorded
	rest  string // a line without its end
}

type recorded struct {
	at   time.Duration
	text string
}

// Write prints p, and keeps its lines while the recording is on.
func (r *recording) Write(p []byte) (int, error) {
	if r.on {
		whole := strings.Split(r.rest+string(p), "\n")
		for _, line := range whole[:len(whole)-1] {
			r.lines = append(r.lines, recorded{time.Since(r.began), strings.TrimPrefix(line, "    ")})
		}
		r.rest = whole[len(whole)-1]
	}
	return r.out.Write(p)
}

func (r *recording) record(context.Context) { r.on = true }
func (r *recording) pause(context.Context)  { r.on = false }

// The picture, in pixels and characters.
const (
	svgRows    = 26
	svgColumns = 100
	rowHeight  = 18
	charWidth  = 8
	descent    = 5 // of the letters below their line
	background = "#161b22"
)

// How long lines stay.
const (
	leastPause = 140 * time.Millisecond // after each line
	mostPause  = 900 * time.Millisecond
	atEnd      = 6 * time.Second // before it begins again
)

// save writes the recording to path.
func (r *recording) save(path string) error {
	var total time.Duration
	var begins []time.Duration
	for i, line := range r.lines {
		if i > 0 {
			total += min(max(line.at-r.lines[i-1].at, leastPause), mostPause)
		}
		begins = append(begins, total)
	}
	total += atEnd
	var texts, moves, covers, times strings.Builder
	for i, line := range r.lines {
		y := (i + 1) * rowHeight
		fmt.Fprintf(&texts, "<text x=\"8\" y=\"%d\"%s>%s</text>\n", y, styleOf(line.text), html.EscapeString(strings.ReplaceAll(shortened(line.text), " ", "\u00a0"))) // which no viewer joins
		fmt.Fprintf(&moves, ";0 %d", min(0, svgRows*rowHeight-y))
		fmt.Fprintf(&covers, ";%d", y+descent)
		fmt.Fprintf(&times, ";%.4f", begins[i].Seconds()/total.Seconds())
	}
	animation := fmt.Sprintf("calcMode=\"discrete\" dur=\"%.1fs\" repeatCount=\"indefinite\" keyTimes=\"%s\"", total.Seconds(), times.String()[1:])
	width, height := svgColumns*charWidth+16, svgRows*rowHeight+descent
	svg := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="13">
<rect width="100%%" height="100%%" fill="%s"/>
<g fill="#c9d1d9">
<animateTransform attributeName="transform" type="translate" values="%s" %s/>
%s<rect y="%d" width="100%%" height="%d" fill="%s"><animate attributeName="y" values="%s" %s/></rect>
</g>
</svg>
`, width, height, background, moves.String()[1:], animation, texts.String(),
		height, len(r.lines)*rowHeight, background, covers.String()[1:], animation)
	return os.WriteFile(path, []byte(svg), 0o644)
}

func shortened(line string) string {
	if runes := []rune(line); len(runes) > svgColumns {
		return string(runes[:svgColumns-1]) + "…"
	}
	return line
}

// styleOf colours what the agent sends, what a shell gets, and headings.
func styleOf(line string) string {
	switch {
	case strings.HasPrefix(line, "→"), strings.HasPrefix(line, "│"):
		return ` fill="#79c0ff"`
	case strings.HasPrefix(line, "$"):
		return ` fill="#d2a8ff"`
	case strings.HasPrefix(line, "←"):
		return ` fill="#7ee787"`
	}
	return ""
}

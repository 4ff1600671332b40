package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
)

// row is a line of the table. Empty fields are left out.
type row struct {
	what    string
	n       int
	figure  string // the median of a latency, or another figure
	p99     string
	ratio   float64
	against string // what the ratio refers to
	target  target
	note    string // counts
}

// section is a topic's part of the table.
type section struct {
	title string
	rows  []row
	err   error
}

// latency returns a row with the times of s.
func latency(what string, s samples) row {
	return row{what: what, n: len(s), figure: short(s.median()), p99: short(s.quantile(0.99))}
}

// comparedTo adds the ratio of the medians. A base of 0 samples adds none.
func (r row) comparedTo(name string, s, base samples) row {
	if len(base) > 0 {
		r.ratio, r.against = s.over(base), name
	}
	return r
}

// target says what a figure should be and whether it is.
type target struct {
	text string
	met  bool
}

func atMost(got, limit float64, unit string) target {
	return target{fmt.Sprintf("at most %g%s", limit, unit), got <= limit}
}

func atLeast(got, limit float64, unit string) target {
	return target{fmt.Sprintf("at least %g%s", limit, unit), got >= limit}
}

// within is atMost for times.
func within(got, limit time.Duration) target {
	return target{"at most " + short(limit), got <= limit}
}

func ratioAtMost(r row, limit float64) row {
	r.target = atMost(r.ratio, limit, "×")
	return r
}

func ratioAtLeast(r row, limit float64) row {
	r.target = atLeast(r.ratio, limit, "×")
	return r
}

func (t target) verdict() string {
	switch {
	case t.text == "":
		return ""
	case t.met:
		return "met"
	}
	return "**missed**"
}

// short writes a time with three digits.
func short(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 1:
		return fmt.Sprintf("%.3f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.3g ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.3g s", ms/1000)
}

// writeTable writes Markdown.
func writeTable(w io.Writer, sections []section) {
	fmt.Fprintln(w, "| what | n | median or figure | p99 | ratio | to | target | | counts |")
	fmt.Fprintln(w, "|---|--:|--:|--:|--:|---|---|---|---|")
	for _, s := range sections {
		fmt.Fprintf(w, "| **%s** | | | | | | | | |\n", s.title)
		for _, r := range s.rows {
			writeCells(w, r.cells())
		}
		if s.err != nil {
			writeCells(w, []string{"not measured: " + s.err.Error(), "", "", "", "", "", "", "", ""})
		}
	}
}

func (r row) cells() []string {
	n, ratio := "", ""
	if r.n > 0 {
		n = fmt.Sprint(r.n)
	}
	if r.ratio > 0 {
		ratio = fmt.Sprintf("%.2f", r.ratio)
	}
	return []string{r.what, n, r.figure, r.p99, ratio, r.against, r.target.text, r.target.verdict(), r.note}
}

// writeCells writes one line of the table. A line break or a bar would end a cell.
func writeCells(w io.Writer, cells []string) {
	for i, text := range cells {
		cells[i] = strings.NewReplacer("\n", " ", "|", "\\|").Replace(cmp.Or(text, " "))
	}
	fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
}

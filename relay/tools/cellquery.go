package tools

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"
)

// Bounds of a search. A regular expression takes time in proportion to the text and to its own
// size, and both come from others.
const (
	queryTime = 2 * time.Second // of one call; the next one continues
	maxRegex  = 5_000           // instructions of the compiled expression
)

// cellQuery is what get_cells looks for in sources. The zero value matches every cell.
type cellQuery struct {
	text  string         // in lower case
	regex *regexp.Regexp // instead of text
}

// newCellQuery reads a query: a text, or a regular expression between slashes, after which i
// ignores case.
func newCellQuery(query string) (q cellQuery, problem *Problem) {
	pattern, isRegex := strings.CutPrefix(query, "/")
	end := strings.LastIndexByte(pattern, '/')
	if !isRegex || end < 1 || pattern[end+1:] != "" && pattern[end+1:] != "i" {
		return cellQuery{text: strings.ToLower(query)}, nil
	}
	flags := "(?m)"
	if pattern[end+1:] == "i" {
		flags = "(?mi)"
	}
	pattern = flags + pattern[:end]
	if err := checkRegex(pattern); err != nil {
		return q, &Problem{
			Code: codeBadRequest, Message: fmt.Sprintf("bad arguments: the expression in %q cannot be used: %v", "query", err),
			Hint: "Use the syntax of RE2, which has no look-around and no references to groups, or give a text without slashes.",
		}
	}
	return cellQuery{regex: regexp.MustCompile(pattern)}, nil
}

// checkRegex refuses what does not compile, and what is too large to run.
func checkRegex(pattern string) error {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return err
	}
	if len(program.Inst) > maxRegex {
		return fmt.Errorf("it is too large: its repetitions make it %d steps long, and %d are allowed", len(program.Inst), maxRegex)
	}
	return nil
}

// search is one call's search.
type search struct {
	cellQuery
	ctx   context.Context
	close context.CancelFunc
}

func (q cellQuery) start(ctx context.Context) search {
	ctx, done := context.WithTimeout(ctx, queryTime)
	return search{q, ctx, done}
}

// over reports whether the time is over. The search of the current cell may be incomplete then.
func (s search) over() bool {
	return (s.regex != nil || s.text != "") && s.ctx.Err() != nil
}

func (s search) matches(source string) bool {
	switch {
	case s.regex != nil:
		return s.regex.MatchReader(&untilOver{s.ctx, strings.NewReader(source), 0})
	case s.text == "":
		return true
	case s.ctx.Err() != nil:
		return false
	}
	return strings.Contains(strings.ToLower(source), s.text)
}

// note says that the search ended early, and where it goes on.
func (s search) note(at int) string {
	return fmt.Sprintf("the search stopped after %g s; the rest was not searched, from cell %d on", queryTime.Seconds(), at)
}

// untilOver is a text that ends when the time is over: matching cannot be stopped otherwise.
type untilOver struct {
	ctx  context.Context
	text *strings.Reader
	read int
}

// ReadRune implements io.RuneReader.
func (u *untilOver) ReadRune() (rune, int, error) {
	if u.read++; u.read%256 == 0 && u.ctx.Err() != nil {
		return 0, 0, io.EOF
	}
	return u.text.ReadRune()
}

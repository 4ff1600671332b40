package tools

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// maxRegex bounds the instructions of a compiled expression. Its time is in proportion to them
// and to the text.
const maxRegex = 5_000

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

func (q cellQuery) matches(source string) bool {
	if q.regex != nil {
		return q.regex.MatchString(source)
	}
	return strings.Contains(strings.ToLower(source), q.text)
}

package parameters

import (
	"strings"

	"colabrelay/shared/lazy"
)

// formStart matches a line that assigns a name, up to the value. Colab shows a form for such a
// line if it ends in a comment that begins with #@param.
var (
	formStart = lazy.Regexp(`^[ \t]*([\pL_][\pL\pN_]*)[ \t]*(?::[^=#]*)?=[ \t]*`)
	formMark  = lazy.Regexp(`^#[ \t]*@param\b`)
)

// form is the value on a #@param line: its name, and where the line has the value.
type form struct {
	name       string
	begin, end int
}

// formOf returns the form of a line, if it has one.
func formOf(line string) (form, bool) {
	start := formStart().FindStringSubmatchIndex(line)
	if start == nil || strings.HasPrefix(line[start[1]:], "=") { // a comparison
		return form{}, false
	}
	comment := commentOf(line, start[1])
	if comment < 0 || !formMark().MatchString(line[comment:]) {
		return form{}, false
	}
	value := strings.TrimRight(line[start[1]:comment], " \t")
	return form{line[start[2]:start[3]], start[1], start[1] + len(value)}, true
}

// commentOf returns where the comment of a line of Python begins at or after a place that is in
// no string, or -1.
func commentOf(line string, from int) int {
	quote := byte(0)
	for i := from; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
		case c == '"' || c == '\'':
			quote = c
		case c == '#':
			return i
		}
	}
	return -1
}

// Fill returns the source of a code cell with the parameters as values of its #@param lines. The
// rest of each line stays.
func (v *Values) Fill(source string) string {
	if len(v.names) == 0 || !strings.Contains(source, "@param") {
		return source
	}
	var b strings.Builder
	for line := range strings.Lines(source) {
		f, ok := formOf(line)
		if expression, given := v.expressions[f.name]; ok && given {
			line = line[:f.begin] + expression + line[f.end:]
		}
		b.WriteString(line)
	}
	return b.String()
}

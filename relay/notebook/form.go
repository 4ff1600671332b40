package notebook

import (
	"strings"

	"colabrelay/shared/lazy"
)

// Colab makes a form of a title, and of each line that assigns a name and ends in a comment that
// begins with #@param.
var (
	titleLine  = lazy.Regexp(`(?m)^[ \t]*#[ \t]*@title\b[ \t]*(.*)$`)
	options    = lazy.Regexp(`[ \t]*\{[^{}]*\}[ \t\r]*$`)
	paramStart = lazy.Regexp(`^[ \t]*([\pL_][\pL\pN_]*)[ \t]*(?::[^=#]*)?=[ \t]*`)
	paramMark  = lazy.Regexp(`^#[ \t]*@param\b`)
)

// maxTitle bounds a title, maxTitleLine a title with its options, both in bytes, and maxParams the
// parameters of a cell. The rest is ignored.
const (
	maxTitle     = 200
	maxTitleLine = 2000
	maxParams    = 200
)

// form returns the title and the parameters of a cell's form.
func form(source string) (title string, params []Param) {
	if !strings.Contains(source, "@title") && !strings.Contains(source, "@param") {
		return "", nil
	}
	if found := titleLine().FindStringSubmatch(source); found != nil {
		line := found[1][:min(len(found[1]), maxTitleLine)]
		title = strings.TrimSpace(options().ReplaceAllString(line, ""))
		title = strings.TrimSpace(strings.ToValidUTF8(title[:min(len(title), maxTitle)], ""))
	}
	for line := range strings.Lines(source) {
		if len(params) == maxParams {
			break
		}
		if name, from, to := ParamOn(line); name != "" {
			params = append(params, Param{Name: name, Value: line[from:to]})
		}
	}
	return title, params
}

// ParamOn returns the parameter whose value a line with #@param sets, and where its value stands; name
// is empty if the line is no such one.
func ParamOn(line string) (name string, from, to int) {
	if !strings.Contains(line, "@param") { // expressions take their time
		return "", 0, 0
	}
	start := paramStart().FindStringSubmatchIndex(line)
	if start == nil || strings.HasPrefix(line[start[1]:], "=") { // a comparison
		return "", 0, 0
	}
	comment := commentOf(line, start[1])
	if comment < 0 || !paramMark().MatchString(line[comment:]) {
		return "", 0, 0
	}
	value := strings.TrimRight(line[start[1]:comment], " \t")
	return line[start[2]:start[3]], start[1], start[1] + len(value)
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

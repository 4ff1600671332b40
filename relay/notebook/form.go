package notebook

import (
	"strings"

	"colabrelay/shared/lazy"
)

// titleLine and paramLine are what Colab makes forms of.
var (
	titleLine = lazy.Regexp(`(?m)^[ \t]*#[ \t]*@title\b[ \t]*(.*)$`)
	paramLine = lazy.Regexp(`(?m)^[ \t]*([\pL_][\pL\pN_]*)[ \t]*=([^=\n].*)#[ \t]*@param\b`)
	options   = lazy.Regexp(`[ \t]*\{[^{}]*\}[ \t\r]*$`)
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
		if !strings.Contains(line, "@param") { // expressions take their time
			continue
		}
		if found := paramLine().FindStringSubmatch(line); found != nil {
			params = append(params, Param{Name: found[1], Value: strings.TrimSpace(found[2])})
		}
	}
	return title, params
}

// Package kernelpy holds the Python that runs in the kernel, as the sources of one package,
// colab_relay, and makes the code that calls its functions there. Nothing is installed on the
// VM: the first call in a kernel includes the package, which then stays in the kernel under a
// name with the hash of its sources. kernelpy must not know who runs the code.
//
// Start reading at Call.Code, then colab_relay/call.py and package_loader.py.
package kernelpy

import (
	"bytes"
	"compress/zlib"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
)

//go:embed colab_relay/*.py colab_relay/*/*.py
var files embed.FS

//go:embed call_template.py
var callTemplate string

const root = "colab_relay"

// missingMIME is the type of the report that the kernel does not have the package, so that
// nothing was called.
const missingMIME = "application/vnd.colab-relay.missing+json"

// IsMissing reports whether a display or a reply, with its data by MIME type, says that the
// kernel does not have the package of this release.
func IsMissing(data map[string]json.RawMessage) bool {
	var report struct{ Package string }
	text, ok := data[missingMIME]
	return ok && json.Unmarshal(text, &report) == nil && report.Package == Package()
}

// hashLength is how many hexadecimal digits of the hash are in the package's name.
const hashLength = 16

// Script is the text of a program of colab_relay/scripts, which an interpreter runs as a file.
func Script(name string) string { return source("scripts/" + name + ".py") }

func source(path string) string {
	text, err := files.ReadFile(root + "/" + path)
	if err != nil {
		panic(fmt.Sprintf("kernelpy: no file %q", path))
	}
	return string(text)
}

// sources are the modules that a kernel may need, by their paths.
var sources = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	err := fs.WalkDir(files, root, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		if err == nil && !d.IsDir() && !strings.HasPrefix(name, "scripts/") {
			found[name] = source(name)
		}
		return err
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	return found
})

// sourcesLiteral is what code with the package contains of it. It is long, and always the same.
var sourcesLiteral = sync.OnceValue(func() string { return literal(sources()) })

// Package is the name that the package has in a kernel.
var Package = sync.OnceValue(func() string {
	hash := sha256.Sum256([]byte(sourcesLiteral()))
	return root + "_" + hex.EncodeToString(hash[:])[:hashLength]
})

// Delivery is how the caller gets what a function returns.
type Delivery string

// Values of Delivery.
const (
	Display Delivery = "display" // as a display, unless it is None; the code's own value is None
	Reply   Delivery = "reply"   // as the value of the code, for a user expression
)

// Call is a call of a function in the kernel.
type Call struct {
	Function  string // with its module within colab_relay, such as "state.operate.save"
	Arguments []any  // plain values
	MIME      string // the type of what the function returns
	Delivery  Delivery
}

// Code is the Python of the call: one expression that neither uses nor defines names of the
// user. Without the package it takes about 2 KB, and if the kernel does not have the package, it
// only reports that; see IsMissing. The same call always gives the same code.
func (c Call) Code(withPackage bool) string {
	included := "{}"
	if withPackage {
		included = sourcesLiteral()
	}
	if c.Arguments == nil {
		c.Arguments = []any{}
	}
	return strings.NewReplacer(
		"CODE", literal(source("call.py")),
		"CALL", literal([]string{Package(), c.Function, c.MIME, string(c.Delivery)}),
		"ARGUMENTS", literal(literal(c.Arguments)),
		"SOURCES", included,
	).Replace(template())
}

// ErrNotKept: the kernel said also of code with the package that it does not have the package.
var ErrNotKept = errors.New("the kernel did not keep the relay's Python package")

// Load runs a call without the package and, if the kernel has reported that it lacks the package,
// again with it: the function was not called then. run says whether IsMissing was reported.
func Load(run func(withPackage bool) (missing bool, err error)) error {
	for _, withPackage := range []bool{false, true} {
		if missing, err := run(withPackage); err != nil || !missing {
			return err
		}
	}
	return ErrNotKept
}

// template is call_template.py without the comment at its head.
func template() string {
	python := callTemplate
	for strings.HasPrefix(python, "#") {
		_, python, _ = strings.Cut(python, "\n")
	}
	return python
}

// Packed is a text as an argument of a call: base64 of zlib. As it is, a text in JSON in a
// literal in JSON would take up to eight times its size.
func Packed(text string) string {
	var buf bytes.Buffer
	w := zlib.NewWriter(&buf)
	_, err := w.Write([]byte(text))
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err) // a buffer takes everything
	}
	return base64.StdEncoding.EncodeToString(buf.Bytes())
}

// literal is v as JSON. Of strings, and of lists and objects of them, that is a Python literal
// of the same value, provided that characters beyond the basic plane are not escaped, which is
// how encoding/json writes them.
func literal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values only
	}
	return string(b)
}

package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"colabrelay/relay/notebook"
	"colabrelay/relay/parameters"
)

// parameterTexts are parameters of each type of JSON, as a caller writes them.
var parameterTexts = map[string]string{
	"words":   `{"a": null, "b": true, "c": false}`,
	"numbers": `{"zero": -0, "big": 123456789012345678901234567890, "one": 1.0, "e5": 1e5, "e15": 1e15, "e16": 1e16, "small": 0.0001, "smaller": 1e-5, "least": 5e-324, "over": 1e999, "minus": -0.0}`,
	"special": `{"nan": NaN, "inf": Infinity, "minus": -Infinity, "all": [NaN, Infinity, -Infinity]}`,
	"strings": `{"quotes": "it's \"so\"", "path": "C:\\new\\table", "lines": "one\ntwo\r\n\tthree", "controls": "\u0000\u0007\u001b\u007f", "empty": "", "braces": "{x} %s #"}`,
	"unicode": `{"raw": "é ü 日本 😀", "escaped": "\u00e9\ud83d\ude00", "separators": "\u2028\u2029\u0085", "größe": 1}`,
	"lists":   `{"a": [], "b": [1, "x", [true, null, [2.5]]]}`,
	"objects": `{"a": {}, "b": {"k \"1\"": [1.5], "": {"n": null}, "ü": "ü", "k \"1\"": 2}}`,
	"order":   `{"z": 1, "a": 2, "z": 3}`,
	"random":  randomNumbers(),
}

// randomNumbers returns the same thousand floats each time.
func randomNumbers() string {
	random := rand.New(rand.NewPCG(12, 0))
	var numbers []string
	for len(numbers) < 1000 {
		f := math.Float64frombits(random.Uint64())
		if len(numbers)%2 == 0 {
			f = random.NormFloat64() * math.Pow10(random.IntN(40)-15)
		}
		if !math.IsNaN(f) && !math.IsInf(f, 0) {
			numbers = append(numbers, strconv.FormatFloat(f, 'e', -1, 64))
		}
	}
	return `{"all": [` + strings.Join(numbers, ", ") + `]}`
}

// parameterNotebooks are where an injected cell may go.
var parameterNotebooks = map[string][]notebook.NewCell{
	"below":   {{Type: notebook.Markdown, Source: "# Title"}, {Type: notebook.Code, Source: "a = 0", Tags: []string{"parameters"}}, {Type: notebook.Code, Source: "print(a)"}},
	"instead": {{Type: notebook.Code, Source: "a = 0", Tags: []string{"parameters"}}, {Type: notebook.Code, Source: "x"}, {Type: notebook.Code, Source: "# Parameters\na = 7\n", Tags: []string{"injected-parameters"}}, {Type: notebook.Code, Source: "print(a)"}},
	"first":   {{Type: notebook.Code, Source: "print(1)"}},
}

// parameters injects cells and compares them with those of papermill.
func (l *lab) parameters(ctx context.Context, dir string) error {
	for where, cells := range parameterNotebooks {
		for name, text := range parameterTexts {
			if err := writeInjected(filepath.Join(dir, where+"-"+name), cells, text); err != nil {
				return fmt.Errorf("%s, %s: %w", where, name, err)
			}
		}
	}
	if err := writeInjected(filepath.Join(dir, "command"), parameterNotebooks["below"], `{"a": true, "b": null, "c": 3, "d": 2.50, "e": "it's", "f": -7, "g": Infinity}`); err != nil {
		return err
	}
	l.drive(ctx, sdk{name: "papermill 2.7.0", command: []string{l.python(), filepath.Join(l.drivers, "python", "parameters.py"), dir}, checks: 2})
	return nil
}

// writeInjected writes a notebook without and with parameters, and their text, into a folder.
func writeInjected(dir string, cells []notebook.NewCell, text string) error {
	d := notebook.New()
	for _, cell := range cells {
		if _, err := d.Insert(-1, cell); err != nil {
			return err
		}
	}
	before := d.Bytes()
	values, err := parameters.Parse(text)
	if err != nil {
		return err
	}
	if _, err := values.Inject(d); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"before.ipynb": before, "after.ipynb": d.Bytes(), "parameters.json": []byte(text)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

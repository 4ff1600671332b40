package bootstrap

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"strings"
)

//go:embed intro.md
var intro string

// Notebook returns the release's cell as a notebook (.ipynb, nbformat 4.5), below
// instructions.
func Notebook(r Release) ([]byte, error) {
	cell, err := Cell(r)
	if err != nil {
		return nil, err
	}
	return notebook(r.fill().Replace(intro), cell)
}

// object is encoded with its keys in alphabetical order, as Jupyter writes them.
type object map[string]any

func notebook(intro, cell string) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(object{
		"cells": []object{
			{"cell_type": "markdown", "id": "what-to-do", "metadata": object{}, "source": lines(intro)},
			{
				"cell_type": "code", "id": "executor", "metadata": object{"cellView": "form"}, "source": lines(cell),
				"execution_count": nil, "outputs": []any{},
			},
		},
		"metadata": object{
			"accelerator":   "GPU", // with gpuType, what Colab offers when the notebook is opened
			"colab":         object{"gpuType": "T4", "name": "colab-relay.ipynb", "provenance": []any{}},
			"kernelspec":    object{"display_name": "Python 3", "name": "python3"},
			"language_info": object{"name": "python"},
		},
		"nbformat":       4,
		"nbformat_minor": 5,
	})
	return text.Bytes(), err
}

// lines splits a cell's text as notebooks store it: each line with its newline, the
// last line without.
func lines(text string) []string {
	return strings.SplitAfter(strings.TrimRight(text, "\n"), "\n")
}

package notebook

import (
	"testing"
)

func TestANewNotebookIsAsNbformatWritesIt(t *testing.T) {
	d := New()
	if _, err := d.Insert(-1, NewCell{Type: Code, Source: "x = 1\ny = 2", Tags: []string{"parameters"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Insert(0, NewCell{Type: Markdown, Source: "# <ü>"}); err != nil {
		t.Fatal(err)
	}
	if err := d.SetOutputs(1, 3, []map[string]any{{"output_type": "stream", "name": "stdout", "text": []string{"a"}}}); err != nil {
		t.Fatal(err)
	}
	want := `{
 "cells": [
  {
   "cell_type": "markdown",
   "id": "` + d.Cell(0).Handle + `",
   "metadata": {},
   "source": [
    "# <ü>"
   ]
  },
  {
   "cell_type": "code",
   "execution_count": 3,
   "id": "` + d.Cell(1).Handle + `",
   "metadata": {
    "tags": [
     "parameters"
    ]
   },
   "outputs": [
    {
     "name": "stdout",
     "output_type": "stream",
     "text": [
      "a"
     ]
    }
   ],
   "source": [
    "x = 1\n",
    "y = 2"
   ]
  }
 ],
 "metadata": {
  "kernelspec": {
   "display_name": "Python 3",
   "language": "python",
   "name": "python3"
  },
  "language_info": {
   "name": "python"
  }
 },
 "nbformat": 4,
 "nbformat_minor": 5
}
`
	if got := string(d.Bytes()); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

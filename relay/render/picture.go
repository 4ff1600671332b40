package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"

	"golang.org/x/image/draw"
)

// Bounds of pictures shown to a model.
const (
	MaxPictures  = 4
	MaxEdge      = 1568    // pixels of the long edge; models scale larger ones down anyway
	MaxBase64    = 500_000 // bytes of one picture's base64
	maxPixels    = 50 << 20
	leastEdge    = 64
	bytesAllowed = MaxBase64 / 4 * 3
)

// Picture is one image as a model may see it.
type Picture struct {
	Offset        int64
	MIMEType      string // image/png or image/jpeg
	Data          []byte
	Width, Height int    // as shown
	Path          string // the original's file, empty when it was not saved
}

// Base64 is the picture's data for image content.
func (p Picture) Base64() string { return base64.StdEncoding.EncodeToString(p.Data) }

var errPixels = errors.New("picture has over 50 million pixels")

// Shrink makes a PNG or JPEG at most MaxEdge pixels long and MaxBase64 bytes in
// base64. One that fits already is kept as it is. The size is read before
// anything is decoded: a few kilobytes can hold gigabytes of pixels.
func Shrink(original []byte) (Picture, error) {
	cfg, format, err := image.DecodeConfig(bytes.NewReader(original))
	if err != nil {
		return Picture{}, fmt.Errorf("reading the picture: %w", err)
	}
	if cfg.Width <= 0 || cfg.Height <= 0 || cfg.Width > maxPixels/cfg.Height {
		return Picture{}, errPixels
	}
	img, _, err := image.Decode(bytes.NewReader(original))
	if err != nil {
		return Picture{}, fmt.Errorf("decoding the picture: %w", err)
	}
	edge := max(cfg.Width, cfg.Height)
	if edge <= MaxEdge && len(original) <= bytesAllowed {
		return Picture{MIMEType: "image/" + format, Data: original, Width: cfg.Width, Height: cfg.Height}, nil
	}
	sharp := format != "jpeg"
	for edge = min(edge, MaxEdge); edge >= leastEdge; edge = edge * 3 / 4 {
		small := resize(img, edge)
		mime, data := encode(small, sharp)
		if len(data) <= bytesAllowed {
			b := small.Bounds()
			return Picture{MIMEType: mime, Data: data, Width: b.Dx(), Height: b.Dy()}, nil
		}
		// What JPEG can't make fit is noise to PNG too: no second try with that.
		sharp = false
	}
	return Picture{}, errors.New("picture can't be made small enough")
}

// resize scales img so that its long edge has the given pixels; never up.
func resize(img image.Image, edge int) image.Image {
	b := img.Bounds()
	long := max(b.Dx(), b.Dy())
	if long <= edge {
		return img
	}
	w, h := max(1, b.Dx()*edge/long), max(1, b.Dy()*edge/long)
	out := image.NewRGBA(image.Rect(0, 0, w, h)) // the scaler has a fast path for RGBA only
	draw.CatmullRom.Scale(out, out.Bounds(), img, b, draw.Src, nil)
	return out
}

// encode gives PNG, which keeps text and lines sharp, when sharp and small enough;
// else JPEG of the best quality that fits, else of the lowest.
func encode(img image.Image, sharp bool) (mime string, data []byte) {
	if sharp {
		var buf bytes.Buffer
		if png.Encode(&buf, img) == nil && buf.Len() <= bytesAllowed {
			return "image/png", buf.Bytes()
		}
	}
	flat := flatten(img)
	for _, quality := range []int{85, 70, 50} {
		var buf bytes.Buffer
		if err := jpeg.Encode(&buf, flat, &jpeg.Options{Quality: quality}); err != nil {
			panic(err) // only for sides over 65,535
		}
		data = buf.Bytes()
		if len(data) <= bytesAllowed || len(data) > 3*bytesAllowed {
			break // it fits, or no quality will make it
		}
	}
	return "image/jpeg", data
}

// flatten puts a picture on white: JPEG has no transparency and would turn it black.
func flatten(img image.Image) image.Image {
	out := image.NewRGBA(img.Bounds())
	draw.Draw(out, out.Bounds(), image.NewUniform(color.White), image.Point{}, draw.Src)
	draw.Draw(out, out.Bounds(), img, img.Bounds().Min, draw.Over)
	return out
}

// digest is a short name for content.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:4])
}

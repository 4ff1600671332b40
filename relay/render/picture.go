package render

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"time"

	"golang.org/x/image/draw"
)

// Bounds of pictures shown to a model.
const (
	MaxPictures  = 4
	maxEdge      = 1568    // pixels of the long edge; models scale larger pictures down
	maxBase64    = 500_000 // bytes of one picture's base64
	leastEdge    = 64
	bytesAllowed = maxBase64 / 4 * 3
	// maxPixels bounds the pictures that are decoded. Eight PNGs of 50 million pixels, about
	// 50 KB each, took 20 s and 1.2 GB.
	maxPixels = 16 << 20
	// decodeTime bounds the work on one picture: a progressive JPEG of a few MB within
	// maxPixels can take hours.
	decodeTime = 5 * time.Second
)

// Picture is one image in a form for a model.
type Picture struct {
	MIMEType      string // image/png or image/jpeg
	Data          []byte
	Width, Height int // as shown
}

// Base64 returns the picture's data in base64.
func (p Picture) Base64() string { return base64.StdEncoding.EncodeToString(p.Data) }

var errPixels = fmt.Errorf("picture has more than %d million pixels, or half as many with 16 bits per channel", maxPixels>>20)

// Redraw returns a PNG or JPEG as a new PNG of at most edge pixels on its long edge. Nothing
// of the original's bytes but its pixels is in it. It bounds its work as for a model.
func Redraw(ctx context.Context, original []byte, edge int) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, decodeTime, errSlowPicture)
	defer cancel()
	img, _, err := decode(ctx, original)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := png.Encode(&buf, resize(img, edge)); err != nil {
		return nil, fmt.Errorf("drawing the picture: %w", err)
	}
	return buf.Bytes(), nil
}

// decode decodes a PNG or JPEG. It checks the size before decoding anything, because a few
// kilobytes can encode gigabytes of pixels. It returns when ctx ends.
func decode(ctx context.Context, original []byte) (image.Image, string, error) {
	cfg, format, err := image.DecodeConfig(bytes.NewReader(original))
	if err != nil {
		return nil, "", fmt.Errorf("reading the picture: %w", err)
	}
	most := maxPixels
	if cfg.ColorModel == color.NRGBA64Model || cfg.ColorModel == color.RGBA64Model {
		most /= 2 // 16 bits a channel take twice the memory
	}
	if cfg.Width <= 0 || cfg.Height <= 0 || cfg.Width > most/cfg.Height {
		return nil, "", errPixels
	}
	img, _, err := image.Decode(untilDone(ctx, bytes.NewReader(original)))
	if ctx.Err() != nil {
		return nil, "", context.Cause(ctx)
	}
	if err != nil {
		return nil, "", fmt.Errorf("decoding the picture: %w", err)
	}
	return img, format, nil
}

// Shrink reduces a PNG or JPEG to at most maxEdge pixels on its long edge and maxBase64
// bytes in base64. It keeps a picture that fits already. It returns when ctx ends.
func Shrink(ctx context.Context, original []byte) (Picture, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, decodeTime, errSlowPicture)
	defer cancel()
	img, format, err := decode(ctx, original)
	if err != nil {
		return Picture{}, err
	}
	size := img.Bounds()
	edge := long(img)
	if edge <= maxEdge && len(original) <= bytesAllowed {
		return Picture{MIMEType: "image/" + format, Data: original, Width: size.Dx(), Height: size.Dy()}, nil
	}
	sharp := format != "jpeg"
	for edge = min(edge, maxEdge); edge >= leastEdge && ctx.Err() == nil; edge = edge * 3 / 4 {
		small := resize(img, edge)
		mime, data := encode(small, sharp)
		if len(data) <= bytesAllowed {
			b := small.Bounds()
			return Picture{MIMEType: mime, Data: data, Width: b.Dx(), Height: b.Dy()}, nil
		}
		// A picture that is too large as JPEG is too large as PNG too.
		sharp = false
	}
	if ctx.Err() != nil {
		return Picture{}, context.Cause(ctx)
	}
	return Picture{}, errors.New("picture cannot be made small enough")
}

var errSlowPicture = fmt.Errorf("picture takes more than %s to decode", decodeTime)

// untilDone returns a reader that fails once ctx ends, because the decoders accept no
// context.
func untilDone(ctx context.Context, from io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return from.Read(p)
	})
}

type readerFunc func(p []byte) (int, error)

func (read readerFunc) Read(p []byte) (int, error) { return read(p) }

// resize scales img down so that its long edge has at most the given pixels.
func resize(img image.Image, edge int) image.Image {
	// Halve it first, because the better scaler takes 32 bytes of memory for each pixel of
	// the new width and the old height.
	for long(img) >= 2*edge {
		img = scale(draw.ApproxBiLinear, img, long(img)/2)
	}
	if long(img) <= edge {
		return img
	}
	return scale(draw.CatmullRom, img, edge)
}

func scale(s draw.Scaler, img image.Image, edge int) image.Image {
	b := img.Bounds()
	w, h := max(1, b.Dx()*edge/long(img)), max(1, b.Dy()*edge/long(img))
	out := image.NewRGBA(image.Rect(0, 0, w, h)) // the scaler has a fast path for RGBA only
	s.Scale(out, out.Bounds(), img, b, draw.Src, nil)
	return out
}

func long(img image.Image) int { return max(img.Bounds().Dx(), img.Bounds().Dy()) }

// encode returns PNG, which keeps text and lines sharp, if sharp is set and it is small
// enough. Otherwise it returns JPEG of the best quality that fits, or of the lowest one.
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
			break // it fits, or will not fit with any quality
		}
	}
	return "image/jpeg", data
}

// flatten puts a picture on white, because JPEG would turn transparent pixels black.
func flatten(img image.Image) image.Image {
	out := image.NewRGBA(img.Bounds())
	draw.Draw(out, out.Bounds(), image.NewUniform(color.White), image.Point{}, draw.Src)
	draw.Draw(out, out.Bounds(), img, img.Bounds().Min, draw.Over)
	return out
}

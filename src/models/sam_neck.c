/* What SAM puts behind its image encoders (neck of segment-anything's ImageEncoderViT): two convolutions, each with a
 * norm over the channels of a pixel. */
#include "models/sam.h"

static const float EPS = 1e-6f; /* LayerNorm2d */

ist_tensor ist_sam_neck(const ist_net *net, ist_tensor x) {
    ist_layer_norm norm = {.eps = EPS};
    norm.x = ist_net_dense(net, x, NULL, "image_encoder.neck.0");                         /* [n,g,g,256] */
    x = ist_net_layer_norm(net, norm, "image_encoder.neck.1");                            /* [n,g,g,256] */
    norm.x = ist_net_dense(net, x, &(ist_conv_opts){IST_PAD(1)}, "image_encoder.neck.2"); /* [n,g,g,256] */
    return ist_net_layer_norm(net, norm, "image_encoder.neck.3");                         /* [n,g,g,256] */
}

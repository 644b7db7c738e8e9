/* The 80 classes of COCO: the detector's dense label (row number), the sparse category id of the dataset, the name. */
#ifndef IST_IO_COCO_CLASSES_H
#define IST_IO_COCO_CLASSES_H

/* clang-format off */
#define IST_COCO_CLASSES(X)                                                                                            \
    X(1, "person") X(2, "bicycle") X(3, "car") X(4, "motorcycle") X(5, "airplane") X(6, "bus") X(7, "train")           \
    X(8, "truck") X(9, "boat") X(10, "traffic light") X(11, "fire hydrant") X(13, "stop sign")                         \
    X(14, "parking meter") X(15, "bench") X(16, "bird") X(17, "cat") X(18, "dog") X(19, "horse") X(20, "sheep")        \
    X(21, "cow") X(22, "elephant") X(23, "bear") X(24, "zebra") X(25, "giraffe") X(27, "backpack")                     \
    X(28, "umbrella") X(31, "handbag") X(32, "tie") X(33, "suitcase") X(34, "frisbee") X(35, "skis")                   \
    X(36, "snowboard") X(37, "sports ball") X(38, "kite") X(39, "baseball bat") X(40, "baseball glove")                \
    X(41, "skateboard") X(42, "surfboard") X(43, "tennis racket") X(44, "bottle") X(46, "wine glass") X(47, "cup")     \
    X(48, "fork") X(49, "knife") X(50, "spoon") X(51, "bowl") X(52, "banana") X(53, "apple") X(54, "sandwich")         \
    X(55, "orange") X(56, "broccoli") X(57, "carrot") X(58, "hot dog") X(59, "pizza") X(60, "donut") X(61, "cake")     \
    X(62, "chair") X(63, "couch") X(64, "potted plant") X(65, "bed") X(67, "dining table") X(70, "toilet")             \
    X(72, "tv") X(73, "laptop") X(74, "mouse") X(75, "remote") X(76, "keyboard") X(77, "cell phone")                   \
    X(78, "microwave") X(79, "oven") X(80, "toaster") X(81, "sink") X(82, "refrigerator") X(84, "book")                \
    X(85, "clock") X(86, "vase") X(87, "scissors") X(88, "teddy bear") X(89, "hair drier") X(90, "toothbrush")
/* clang-format on */

#define IST_COCO_CLASS_COUNT 80

#endif
